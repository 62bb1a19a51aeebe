"""Files that enact a plan: Kubernetes objects, pages for a person, in a safe order."""
