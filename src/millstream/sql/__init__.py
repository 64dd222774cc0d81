"""SQL: what readers may ask, and (later) whole flows said in SQL."""
