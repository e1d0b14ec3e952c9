"""The measured code: the tests commit a second version of it with another number of products."""

PRODUCTS = 1
