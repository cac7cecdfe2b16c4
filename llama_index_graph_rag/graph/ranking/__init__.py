"""Rankings: from recalled relations, entities and passages to scored passages."""
