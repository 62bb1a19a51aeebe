"""From a choice to actions: who earns what, on what evidence, how sure, in which order."""
