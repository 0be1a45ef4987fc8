"""Describe invalid settings without their values, which may be secret."""

from pydantic import ValidationError


def list_invalid_settings(error: ValidationError) -> list[str]:
    """Return the name and the fault of each invalid setting, such as ``LAKEHOUSE_GAP_BUDGET: Input should be …``."""
    return [": ".join(filter(None, (".".join(map(str, item["loc"])).upper(), item["msg"]))) for item in error.errors()]
