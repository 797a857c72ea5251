"""Programs that stand on the parts of this repository as an outsider's would."""
