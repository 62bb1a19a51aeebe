"""What is judged for every fleet and never planned."""
