"""Reports as sections: made once from what was found, written by `writers` that know nothing of it."""
