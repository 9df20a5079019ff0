"""Decoders other than the native one: Pillow, and nvImageCodec."""
