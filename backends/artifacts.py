"""What a backend makes on the way, by extension: texts and binaries, each made when somebody asks for it."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Artifacts(dict[str, str | bytes]):
    """Texts by extension, each made when it is asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], str | bytes]]) -> None:
        super().__init__()
        self._makers = dict(makers)

    def __missing__(self, key: str) -> str | bytes:
        self[key] = self._makers.pop(key)()
        return self[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter([*super().__iter__(), *self._makers])

    def __len__(self) -> int:
        return super().__len__() + len(self._makers)

    def keys(self) -> Any:
        return list(self)

    def items(self) -> Any:
        return [(k, self[k]) for k in list(self)]

    def values(self) -> Any:
        return [self[k] for k in list(self)]

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default
