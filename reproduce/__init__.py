"""The experiments of the papers that Transom implements; they use the package but are not part of it."""
