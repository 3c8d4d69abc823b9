"""JPEG decoders other than Pillow, each with what makes a 224x224 picture of what it decodes."""
