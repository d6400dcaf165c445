"""All statements that dispatch, claim, record or finalise rows: one file a role, one function a verb."""
