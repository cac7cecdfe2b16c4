"""``python -m llama_index_graph_rag`` is the console script."""

from llama_index_graph_rag.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
