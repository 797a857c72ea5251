"""Access control: authentication, authorization, impersonation and the audit log.

Start with ``request_authenticator.py`` (from credentials to a user), then ``authorization.py`` (may
the user do this), ``rbac.py`` (the roles of a plane) and ``rbac_rules.py`` (what one rule allows).
This package does not depend on routes, verbs or HTTP. To add an authentication method: extend
``RequestAuthenticator``.
"""
