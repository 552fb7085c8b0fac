"""The operator library, written in PLIR: one text a module, read by `import std.NAME`. This file only makes the folder part of the package."""
