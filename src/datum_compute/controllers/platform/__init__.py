"""Controllers of what Milo does where there is one: organizations, projects, services and who may
use them. They run beside the server of the platform; on Milo's own planes they do not.
"""
