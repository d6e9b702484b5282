"""Loops of the WordPiece cutter."""
