"""From words and DataFrames to stages."""
