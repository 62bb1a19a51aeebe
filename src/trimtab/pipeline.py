"""collect -> diagnose -> plan -> prove -> emit, as functions a person can read in one sitting."""
