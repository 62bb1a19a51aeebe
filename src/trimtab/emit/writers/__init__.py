"""Writers of pages made of `blocks`: each knows a form and no report."""
