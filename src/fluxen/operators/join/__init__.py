"""m-way joins, at once or as trees."""
