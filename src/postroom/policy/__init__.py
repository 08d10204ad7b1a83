"""The rules of the house, as pure verdicts: values in, a value or a refusal out.

Policy knows the model. It refuses to know stores, clocks (time is handed in) and callers.
The service is the only room that asks it.
"""
