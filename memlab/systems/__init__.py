"""The adapters of the systems whose memories memlab reads, one module or package each.

An adapter imports no other adapter. What several share is in :mod:`memlab.sources`, with the table
that lists them (:data:`memlab.sources.opening.SYSTEMS`).
"""
