"""Price lists of the clouds as rates of the price book: one module a list."""
