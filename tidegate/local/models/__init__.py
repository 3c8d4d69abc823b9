"""The models of ``model_repository/``: each module puts one ``model.onnx`` where its ``config.pbtxt`` expects it."""
