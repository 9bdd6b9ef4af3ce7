"""Which keys are hot, and which site owns which key."""
