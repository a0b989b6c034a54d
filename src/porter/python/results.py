"""What a plugin returns, as JSON. Called by `worker` for each answer."""

import base64
import enum
import json
import os

# Values inside values; what is deeper is shown as Python shows it.
DEEPEST = 100


def encode(value):
    """The JSON text of a value, and a note for each thing that is not written as it is."""
    notes = []
    try:
        return _dumps(value, lambda other: _plainer(other, notes)), notes
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, a NaN, a circle.
        del notes[:]
        return _dumps(_plain(value, notes, []), None), notes


def _dumps(value, default):
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)


def _plainer(value, notes):
    """One step nearer to JSON."""
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name, None) for name in value.__dataclass_fields__}
    # Models of pydantic, arrays and numbers of numpy.
    for name in ("model_dump", "tolist"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray)):
        _note(notes, "bytes are written in base64")
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(getattr(value, "isoformat", None)):
        return value.isoformat()
    _note(notes, "%s is no JSON: it is written as Python shows it" % type(value).__name__)
    return _shown(value)


def _plain(value, notes, above):
    """The same value of nothing but what JSON has."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if value == value and value not in (float("inf"), float("-inf")):
            return value
        _note(notes, "JSON has no number %r: it is written as a text" % value)
        return repr(value)
    if len(above) >= DEEPEST or id(value) in above:
        _note(notes, "a value that holds itself, or is deeper than %d, is cut" % DEEPEST)
        return _shown(value)
    above = above + [id(value)]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else _shown(key): _plain(item, notes, above)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, notes, above) for item in value]
    return _plain(_plainer(value, notes), notes, above)


def _shown(value):
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)


def _note(notes, note):
    if note not in notes and len(notes) < 10:
        notes.append(note)
