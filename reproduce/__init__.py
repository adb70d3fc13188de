"""The experiments of the prodding thesis (chapter 4, figure 6.3), and what goes beyond it, on the engine."""
