"""Node postprocessors that choose relations and turn them into passages."""
