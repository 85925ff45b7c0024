"""offing's search in place of other packages: :mod:`~offing.compat.faiss`, :mod:`~offing.compat.sklearn`,
:mod:`~offing.compat.d3rlpy`, :mod:`~offing.compat.torch`. Each needs its package only where it gives or takes its types.
"""
