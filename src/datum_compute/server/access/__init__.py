"""Who may do what: identities, roles, reviews, impersonation and the trail that is left.

Reading order: ``gate.py`` (one request from credentials to permission), then ``roles.py`` (the
roles of a plane, as the store has them) and ``rules.py`` (what one rule allows).
To add: a way to prove who one is goes into ``gate.py``; a review kind is a function listed in
``reviews.py``.
"""
