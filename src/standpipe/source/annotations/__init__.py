"""Sources of images with instances, such as boxes, from annotation files."""
