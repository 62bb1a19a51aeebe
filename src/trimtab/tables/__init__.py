"""The column schemas of every observation and the fleet bundle on disk."""
