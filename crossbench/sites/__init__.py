"""Make the static pages of a folder of results files: `site`. Above results and report."""
