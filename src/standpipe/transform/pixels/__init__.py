"""Native transforms of images, each with its parameters and its size rule."""
