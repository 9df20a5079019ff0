"""Transforms of torchvision and timm become native ones that give the same pixels."""
