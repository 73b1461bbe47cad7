"""The recipes: how each artefact is built; `recipe.Recipe` is their base class."""
