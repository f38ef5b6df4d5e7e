"""What held-out tasks say of an agent: success, calibration of its critic, whose credit is right."""
