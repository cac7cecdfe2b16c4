"""The commands over an index that is there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_index_graph_rag.cli.opening import open_index
from llama_index_graph_rag.cli.output import print_counts, print_json, print_passages
from llama_index_graph_rag.errors import GraphRAGValueError

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore


def query(arguments: argparse.Namespace) -> None:
    """Print the passages that answer a question, and with --answer an answer."""
    from llama_index_graph_rag.explanation import Explanation
    from llama_index_graph_rag.models import answer_from, llm_named

    llm = llm_named(arguments.llm, api_base=arguments.api_base) if arguments.answer else None
    with open_index(arguments, with_model=True) as index:
        retriever = index.as_retriever(similarity_top_k=arguments.top_k, llm=llm)
        nodes, trace = retriever.retrieve_with_trace(arguments.question)
    answer, reason = answer_from(llm, arguments.question, nodes) if llm is not None else ("", "")
    if arguments.explain:
        written = Explanation.from_trace(nodes, trace).save_html(arguments.explain)
        print(f"why: {written}", file=sys.stderr)
    notes = [*trace.fallbacks, *([reason] if reason else [])]
    relations = [[use.text for use in result.relations] for result in trace.results]
    if arguments.json:
        print_json(
            {
                "question": arguments.question,
                "answer": answer,
                "passages": [
                    {
                        "id": node.node.node_id,
                        "score": node.score,
                        "text": node.text,
                        "relations": by,
                    }
                    for node, by in zip(nodes, relations)
                ],
                "notes": notes,
                "calls": dict(trace.calls),
            }
        )
        return
    if answer:
        print(answer + "\n")
    sources = [_source(node) for node in nodes]
    print_passages(nodes, relations, sources=sources, whole=arguments.whole)
    _print_notes(notes)


def _source(node: NodeWithScore) -> str:
    place = node.node.metadata.get("file_path") or node.node.ref_doc_id or node.node.node_id
    return f"{place}  (score {node.score or 0:.2f})"


def connect(arguments: argparse.Namespace) -> None:
    """Print how entities are connected; without --uri, those of the demo corpus."""
    if len(arguments.names) < 2:
        raise GraphRAGValueError(f"only {arguments.names} is named; give two names or more")
    from contextlib import closing

    from llama_index_graph_rag.demo import demo_index

    with open_index(arguments) if arguments.uri else closing(demo_index()) as index:
        retriever = index.as_connection_retriever(
            mode="paths", max_paths=arguments.paths, entity_extractor=None
        )
        nodes, trace = retriever.connect(arguments.names)
    notes = [*trace.fallbacks, *trace.dropped]
    if arguments.json:
        print_json(
            {
                "names": arguments.names,
                "documents": [node.text for node in nodes],
                "notes": notes,
            }
        )
        return
    where = f"in {arguments.uri}" if arguments.uri else "in the demo corpus (give --uri for yours)"
    print("\n\n".join(node.text for node in nodes) or f"No connection was found {where}.")
    _print_notes(notes)


def stats(arguments: argparse.Namespace) -> None:
    """Print how much is in an index."""
    with open_index(arguments) as index:
        counts = index.stats()
    print_counts(counts, as_json=arguments.json)


def delete(arguments: argparse.Namespace) -> None:
    """Delete documents, or passages."""
    with open_index(arguments) as index:
        before = index.stats()
        if arguments.passages:
            index.delete_nodes(arguments.ids)
        else:
            known = index.ref_doc_info
            for id in arguments.ids:
                path = Path(id).resolve().as_posix()
                index.delete_ref_doc(id if id in known or path not in known else path)
        after = index.stats()
    deleted = {f"deleted_{kind}": before[kind] - after[kind] for kind in ("passages", "relations")}
    if not deleted["deleted_passages"]:
        raise GraphRAGValueError(
            f"no {'passage' if arguments.passages else 'document'} of the index has this id: "
            f"{', '.join(arguments.ids)}; `llama-graph-rag export` lists them all"
        )
    print_counts(deleted, as_json=arguments.json)


def vacuum(arguments: argparse.Namespace) -> None:
    """Remove what no passage holds any more."""
    with open_index(arguments) as index:
        removed = index.vacuum()
    print_counts(
        {f"removed_{kind}": count for kind, count in removed.items()}, as_json=arguments.json
    )


def export(arguments: argparse.Namespace) -> None:
    """Print passages and their triplets, one JSON object a line."""
    with open_index(arguments) as index:
        for page in index.store.scan_passages():
            for passage in index.store.get_passages([key.id for key in page]):
                line = {
                    "id": passage.node.node_id,
                    "ref_doc_id": passage.node.ref_doc_id,
                    "text": passage.node.text,
                    "metadata": passage.node.metadata,
                    "triplets": [list(mention.triplet) for mention in passage.mentions],
                }
                print(json.dumps(line, ensure_ascii=False))


def evaluate(arguments: argparse.Namespace) -> None:
    """Measure retrieval on a data set, against plain vector retrieval on the same passages."""
    import tempfile

    from llama_index.core import VectorStoreIndex

    from llama_index_graph_rag.evaluation import evaluate as measure
    from llama_index_graph_rag.evaluation import load_dataset
    from llama_index_graph_rag.index import GraphRAGIndex
    from llama_index_graph_rag.models import LOCAL, embed_model_named

    dataset = load_dataset(arguments.data)
    model = embed_model_named(arguments.embed_model or LOCAL, api_base=arguments.api_base)
    with tempfile.TemporaryDirectory() as folder:
        index = GraphRAGIndex.from_triplets(
            dataset.nodes,
            dataset.triplets,
            uri=Path(folder) / "eval.db",
            embed_model=model,
            show_progress=not arguments.json,
        )
        try:
            plain = VectorStoreIndex.from_vector_store(
                index.passage_vector_store, embed_model=model
            )
            dense = measure(plain.as_retriever(similarity_top_k=10), dataset, name="dense")
            graph = measure(
                index.as_retriever(similarity_top_k=10), dataset, baseline=dense, name="graph"
            )
        finally:
            index.close()
    if arguments.json:
        reports = [report.to_dict(with_questions=False) for report in (dense, graph)]
        print_json({"dataset": dataset.name, "retrievers": dict(zip(("dense", "graph"), reports))})
    else:
        print(dense.to_table())
        print()
        print(graph.to_table())


def _print_notes(notes: Sequence[str]) -> None:
    for line in notes:
        print(f"note: {line}", file=sys.stderr)
