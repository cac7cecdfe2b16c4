"""Files that ship with the package: the demo corpus and a tokenizer's vocabulary."""
