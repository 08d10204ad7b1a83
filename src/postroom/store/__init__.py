"""Where mail is kept. One protocol (`base`), several stores, one contract suite that proves them alike.

A store knows the model and nothing above it: no policy, no service. It promises only what `base` says.
"""
