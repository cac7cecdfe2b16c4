"""From text to triplets, from a question to entities or keywords."""
