"""Files that others wrote, read within stated limits: one place for text, YAML, JSON, CSV and Parquet.

Whatever a file holds, its reader here returns plain values or raises one `InputError` that names the place and the cure.
"""
