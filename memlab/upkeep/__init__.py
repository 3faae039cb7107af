"""The health of a store (``memlab doctor``), and its maintenance every night (``memlab maintain``).

The steps that maintenance takes are elsewhere: plans in ``compaction``, settings in ``settings``.
"""
