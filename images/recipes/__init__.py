"""How each artefact is made; `recipe.Recipe` is what they have in common."""
