"""Pretrain encoders on plain text, and induce the senses of words."""
