"""What is read together with a file, though nobody names it: its content counts, too."""

from __future__ import annotations

from pathlib import Path


def beside_encoder(encoder: str) -> list[str]:
    """What else is read with an encoder's file: `NAME_options.json` with `NAME_weights.hdf5`."""
    from calque.encoders.elmo_files import file_pair

    pair = file_pair(Path(encoder))
    return [str(pair[0])] if pair is not None and not Path(encoder).is_dir() else []


def keys_of(data: str) -> list[str]:
    """Files of right senses beside a text."""
    stem, is_senses, _ = Path(data).name.partition(".data.xml")
    return sorted(str(file) for file in Path(data).parent.glob(f"{stem}.gold.key.txt*")) if is_senses else []
