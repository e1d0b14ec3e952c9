"""Results as tables, plots and pages: strings and files, nothing printed."""
