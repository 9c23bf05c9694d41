"""The model: loaded or made, with the tokens between documents, and what it can do."""

from trainer.models.loading import load_model
from trainer.models.probe import compile_body, has_dropout, isolates_documents
from trainer.models.specials import DocumentTokens, document_tokens

__all__ = [
    "DocumentTokens",
    "compile_body",
    "document_tokens",
    "has_dropout",
    "isolates_documents",
    "load_model",
]
