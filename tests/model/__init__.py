"""The model: values, tables and folds."""
