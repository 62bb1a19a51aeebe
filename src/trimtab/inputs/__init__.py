"""Reads text, YAML, JSON, CSV and Parquet files written by others, within stated limits.

Whatever a file holds, its reader here returns plain values or raises one `InputError` that names the place and the cure.
"""
