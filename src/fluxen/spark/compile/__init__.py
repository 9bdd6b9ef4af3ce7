"""From a DataFrame that Spark has analysed to stages: what `fluxen.query` does.

walk.py goes down the plan and cuts it at stateful nodes; normal.py puts the plan in order before; pieces.py holds what
lies between two cuts and stays with Spark; conditions.py and moments.py read what joins ask for; joins.py and
aggregates.py make stages; refusals.py says what cannot be run, and where in the query it stands.
"""
